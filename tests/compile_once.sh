#!/usr/bin/env bash
# Launches a compiler for an emitted project (CMAKE_CXX_COMPILER_LAUNCHER), so that what all projects copy, the run time
# and the readers of data, is compiled once for all tests: through ccache, for which a project's place is nothing, and
# with one namespace for Graven's text, which else has the project's name. What CMake compiles as one is compiled in
# parts, which become one object. Not for projects that meet in one program.
# By clang++ nothing is optimised, by g++ kernels are a little, which takes half of the time, unless all tests are asked
# for (GRAVEN_ALL_TESTS): they compute the same bits. As users compile them they are tested by tests/kernels, bits/ and
# the samples.
# The objects are kept in the folder EMITTED_OBJECTS, or in the build folder that the project lies in.
# EMITTED_OBJECTS=none is for a project that no other is compiled like: it is compiled whole, as CMake says, which takes
# less than its parts.
set -eu
above() {  # FILE FOLDER: the folder with that file, this one or the nearest above it
  local folder=$2
  while [ -n "$folder" ] && [ ! -e "$folder/$1" ]; do folder=${folder%/*}; done
  echo "$folder"
}
project=$(above graph.json "$PWD")
objects=${EMITTED_OBJECTS:-}
if [ -z "$objects" ]; then
  build=$(above CMakeCache.txt "${project%/*}")
  objects=${build:+$build/emitted_objects}
fi
if [ -z "$project" ] || [ -z "$objects" ] || ! command -v ccache >/dev/null; then exec "$@"; fi
case $("$1" --version) in
  *'Free Software Foundation'*) compiler=g++ little=-O1 ;;
  *'clang version'*) compiler=clang++ little=-O0 ;;
  *) compiler=other little=-O1 ;;
esac
command=() output='' source='' last=''
for word in "$@"; do
  if [ -z "${GRAVEN_ALL_TESTS:-}" ]; then
    case $word in
      -O[23]) word=$little ;;
      -O[1g]) if [ $compiler = clang++ ]; then word=$little; fi ;;
      -fvect-cost-model=* | -fpeel-loops | -funswitch-loops) continue ;;
    esac
  fi
  case $word in
    -Dgraven=*_graven) command+=(-Dgraven=project_graven) ;;
    *) command+=("$word") ;;
  esac
  case $last in
    -o) output=$word ;;
    -c) source=$word ;;
  esac
  last=$word
done
if [ "$objects" = none ]; then exec "${command[@]}"; fi
unset CCACHE_RECACHE
export CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=$project CCACHE_DIR=$objects

# The files that CMake compiles as one: the project's own stay one, and each of the run time's, which are other ones in
# other projects, is compiled by itself.
own='' sources=()
if [[ $source == */Unity/*.cxx && -n $output ]]; then
  while read -r include file; do
    [ "$include" = '#include' ] || continue
    case $file in
      "\"$project/runtime/"*) file=${file#\"} sources+=("${file%\"}") ;;
      *) own+="#include $file"$'\n' ;;
    esac
  done <"$source"
fi
if [ -n "$own" ]; then
  sources+=("$output.own.cpp")
  printf %s "$own" >"$output.own.cpp"
fi

# What the files include of the standard library, precompiled with these options: half of their time. That they include
# what they use is seen where they are compiled without it (tests/emit/hostile_names_test.cpp).
headers() {
  local word name last='' options=() folder file
  if ! command -v flock >/dev/null || [ $compiler = other ]; then return 0; fi
  for word in "${command[@]:1}"; do
    case $last in -o | -c | -MT | -MF | -isystem)
      last=''
      continue
      ;;
    esac
    last=$word
    case $word in
      -D* | -I* | -o | -c | -MT | -MF | -MD | -isystem | -Werror) ;;
      *) options+=("$word") ;;
    esac
  done
  folder=$(printf '%s ' "$1" "$(stat -Lc %Y "$(command -v "$1")")" "${options[@]}" | sha256sum | cut -c 1-16)
  folder=$objects/headers/$folder
  file=$folder/std.h.gch
  if [ $compiler = clang++ ]; then
    file=$folder/std.h.pch
    options+=(-fpch-instantiate-templates)
  fi
  mkdir -p "$folder"
  (
    flock 9
    if [ -e "$file.sum" ]; then exit; fi
    # To make them takes as long as they save in a few files.
    echo >>"$folder/uses"
    if [ "$(wc -l <"$folder/uses")" -lt 5 ]; then exit; fi
    for name in algorithm array cerrno charconv cmath cstddef cstdint cstdio cstring exception functional \
      initializer_list iterator limits map memory new numbers optional span stdexcept string string_view tuple \
      type_traits utility vector; do
      echo "#include <$name>"
    done >"$folder/std.h"
    "$1" "${options[@]}" -DNDEBUG -x c++-header "$folder/std.h" -o "$file" && sha256sum <"$file" >"$file.sum"
  ) 9>"$folder/lock"
  if [ -e "$file.sum" ]; then printf %s "$file"; fi
}
own_words=()
if [ -n "$source" ] && precompiled=$(headers "$@") && [ -n "$precompiled" ]; then
  if [ $compiler = clang++ ]; then
    own_words=(-include-pch "$precompiled")
  else
    own_words=(-include "${precompiled%.gch}" -fpch-preprocess)
  fi
  export CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_PCH_EXTSUM=1
fi

# What MPI adds to a command is for files that include it, two of the run time and CMake's own, with which it looks for
# MPI: all others are compiled as without.
without_mpi() {  # FILE WORDS: what is left of them, in `kept`
  local file=$1 word skips=''
  kept=("${@:2}")
  if [[ -z $file || $file == */Unity/* ]] || grep -q '<mpi.h>' "$file"; then return 0; fi
  kept=()
  for word in "${@:2}"; do
    if [ -n "$skips" ]; then
      skips=''
      continue
    fi
    case $word in
      -DGRAVEN_MPI) ;;
      -isystem) skips=yes ;;
      *) kept+=("$word") ;;
    esac
  done
}
if [ ${#sources[@]} = 0 ]; then
  without_mpi "$source" "${command[@]}" "${own_words[@]}"
  exec ccache "${kept[@]}"
fi
parts=()
for file in "${sources[@]}"; do
  part=$output.${#parts[@]}
  parts+=("$part")
  words=()
  for word in "${command[@]}"; do
    case $word in
      "$source") word=$file ;;
      "$output") if [ "$last" = -MT ]; then word=object; else word=$part.o; fi ;;  # ccache looks at the target's name
      "$output.d") word=$part.d ;;
      # The levels are nothing to the run time, which is always compiled without warnings.
      -DGRAVEN_HAS_* | -Wpedantic | -Werror) if [ "$file" != "$output.own.cpp" ]; then continue; fi ;;
    esac
    words+=("$word")
    last=$word
  done
  words+=("${own_words[@]}")
  if [ "$file" != "$output.own.cpp" ]; then words+=(-Werror); fi
  without_mpi "$file" "${words[@]}"
  ccache "${kept[@]}"
done
"$1" -r -nostdlib "${parts[@]/%/.o}" -o "$output"
if [ -e "$output.0.d" ]; then  # it depends on what they do
  {
    printf '%s:' "$output"
    for part in "${parts[@]}"; do sed -e '1s/^[^:]*://' -e '$s/$/ \\/' "$part.d"; done
    echo
  } >"$output.d"
fi
