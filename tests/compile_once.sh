#!/usr/bin/env bash
# Launches a compiler for an emitted project (CMAKE_CXX_COMPILER_LAUNCHER), so that what all projects copy, the run time
# and the readers of data, is compiled once for all tests: through ccache, for which a project's place is nothing, and
# with one namespace for Graven's text, which else has the project's name. Not for projects that meet in one program.
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
command=()
for word in "$@"; do
  case $word in
    -Dgraven=*_graven) command+=(-Dgraven=project_graven) ;;
    *) command+=("$word") ;;
  esac
done
exec env -u CCACHE_RECACHE CCACHE_NOHASHDIR=1 CCACHE_BASEDIR="$project" CCACHE_DIR="$objects" \
  ccache "${command[@]}"
