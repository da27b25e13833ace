#!/usr/bin/env bash
# Launches a compiler for an emitted project (CMAKE_CXX_COMPILER_LAUNCHER), so that what all projects copy, the run time
# and the readers of data, is compiled once for all tests: through ccache, for which a project's place is nothing, and
# with one namespace for Graven's text, which else has the project's name. Where CMake compiles files of a project's own
# and such copies together, each kind is compiled by itself, and the two objects become one. Not for projects that meet
# in one program.
# The objects are kept in the folder EMITTED_OBJECTS, or in the build folder that the project lies in.
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
command=() output='' source='' last=''
for word in "$@"; do
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
unset CCACHE_RECACHE
export CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=$project CCACHE_DIR=$objects

own=() copied=()
if [[ $source == */Unity/*.cxx && -n $output && $* != *-fsanitize=* ]]; then
  while read -r include file; do
    [ "$include" = '#include' ] || continue
    file=${file#\"$project/} file=${file%\"}
    if [[ $file == runtime/* ]]; then copied+=("$file"); else own+=("$file"); fi
  done <"$source"
fi
if [ ${#own[@]} = 0 ] || [ ${#copied[@]} = 0 ]; then exec ccache "${command[@]}"; fi
parts=()
for kind in own copied; do
  declare -n files=$kind
  part=$output.$kind
  # By their names within the project, which -I finds: the text is the same in every project.
  printf '#include "%s"\n' "${files[@]}" >"$part.cpp"
  words=()
  for word in "${command[@]}"; do
    case $word in
      "$source") words+=("$part.cpp") ;;
      "$output") if [ "$last" = -MT ]; then words+=("$word"); else words+=("$part.o"); fi ;;
      "$output.d") words+=("$part.d") ;;
      *) words+=("$word") ;;
    esac
    last=$word
  done
  ccache "${words[@]}"
  parts+=("$part.o")
done
"$1" -r -nostdlib "${parts[@]}" -o "$output"
# What it depends on is what they do.
[ ! -e "$output.own.d" ] || { sed '$s/$/ \\/' "$output.own.d"; sed '1s/^[^:]*://' "$output.copied.d"; } >"$output.d"
