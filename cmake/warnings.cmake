# Warnings are errors, everywhere; sanitizers where asked for.
function(graven_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Werror)
  if(GRAVEN_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
    target_link_options(${target} PUBLIC -fsanitize=address,undefined)
  endif()
endfunction()
