#!/usr/bin/env bash
# Launches another compiler in the place of the one that CMake calls: compile_with.sh CLANG++ [CCACHE] -- G++ ARGUMENTS.
# Of g++'s options it leaves out those that clang++ does not know. Objects of both are linked together: they share their
# ABI and the standard library.
set -eu
compiler=$1 ccache=()
shift
while [ "$1" != -- ]; do ccache+=("$1") && shift; done
shift 2
arguments=() last=''
for argument in "$@"; do
  case $last in
    --param) last='' && continue ;;
    # The header that is to be precompiled is included by name, and would be taken from what stands there precompiled.
    -o) case $argument in *.gch) rm -f "$argument" ;; esac ;;
  esac
  last=$argument
  case $argument in --param | -Wno-restrict | -Winvalid-pch) ;; *) arguments+=("$argument") ;; esac
done
# A precompiled header has the times of what it includes in it, which ccache's copy of it need not match.
exec "${ccache[@]}" "$compiler" "${arguments[@]}" -Xclang -fno-pch-timestamp
