# Warnings are errors, everywhere; sanitizers where asked for.
# libstdc++'s stable_sort uses what libstdc++ deprecates, which newer ones than its own contemporaries report.
set(GRAVEN_CLANG_WARNINGS -Wno-unused-private-field -Wno-deprecated-declarations)
function(graven_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Werror)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ 12 sees overlapping copies where a literal is joined with a std::string (its bug 105651).
    target_compile_options(${target} PRIVATE -Wno-restrict)
  endif()
  if(GRAVEN_SANITIZE STREQUAL "address")
    target_compile_options(${target} PRIVATE -fsanitize=address,undefined -fno-sanitize-recover=all
                           -fno-omit-frame-pointer -g1)
    target_link_options(${target} PUBLIC -fsanitize=address,undefined)
  elseif(GRAVEN_SANITIZE STREQUAL "thread")
    target_compile_options(${target} PRIVATE -fsanitize=thread -fno-omit-frame-pointer -g1)
    target_link_options(${target} PUBLIC -fsanitize=thread)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    target_compile_options(${target} PRIVATE ${GRAVEN_CLANG_WARNINGS})
  endif()
  if(GRAVEN_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # The instrumentation hides from g++ that a variant's other alternatives are not read.
    target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized)
  endif()
endfunction()

# UndefinedBehaviorSanitizer without what it asks of each pointer before it is used: a null one is seen anyway, by the
# crash, and the two together are a quarter of the time to compile, and of the code. Not for what reads bytes of files,
# and for kernels.
function(graven_few_checks target)
  if(GRAVEN_SANITIZE STREQUAL "address")
    target_compile_options(${target} PRIVATE -fno-sanitize=null,alignment)
  endif()
endfunction()
