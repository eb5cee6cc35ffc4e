#!/usr/bin/env bash
# Builds kaldifeat, the fastest feature backend, from its PyPI source into .venv (about ten
# minutes on two cores, needs cmake, make and g++). Optional: the other backends give the same
# numbers. Idempotent: a second run installs nothing, and pip's cache keeps the built wheel.
#
#   local/install_kaldifeat.sh
#
# VENV=DIR names another environment (made by local/setup.sh), JOBS=N the parallel compilers (2).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ $# -gt 0 ]; then
  sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
  case "$1" in -h | --help) exit 0 ;; esac
  echo "install_kaldifeat.sh: unknown option '$1'" >&2
  exit 2
fi

version=1.24
venv=${VENV:-.venv}
python=$(realpath -s "$venv")/bin/python  # not resolved: the link inside is what makes it a venv

fail() { echo "install_kaldifeat.sh: $*" >&2; exit 1; }

[ -x "$python" ] || fail "there is no environment in $venv; run local/setup.sh first"
"$python" -c 'import torch' 2>/dev/null || fail "torch is missing in $venv; run local/setup.sh first"
exec 9>"$venv/.lock-kaldifeat"
flock 9  # two at once: the second waits and finds everything done
if "$python" -c 'import torch, kaldifeat' 2>/dev/null; then
  echo "install_kaldifeat.sh: kaldifeat is installed"
  exit 0
fi
for tool in cmake make g++; do
  command -v "$tool" >/dev/null || fail "'$tool' is not on PATH; install it (Debian: apt-get install cmake make g++)"
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# torch's own TorchConfig.cmake looks for the CUDA toolkit even where only the CPU is used; this
# one names just what kaldifeat links with. TORCH_DIR is set by kaldifeat before it is read.
mkdir "$work/torch" "$work/pybind11"
abi=$("$python" -c 'import torch; print(int(torch.compiled_with_cxx11_abi()))')
cat >"$work/torch/TorchConfig.cmake" <<CMAKE
set(TORCH_INCLUDE_DIRS "\${TORCH_DIR}/include" "\${TORCH_DIR}/include/torch/csrc/api/include")
set(TORCH_LIBRARIES
  "\${TORCH_DIR}/lib/libtorch.so" "\${TORCH_DIR}/lib/libtorch_cpu.so" "\${TORCH_DIR}/lib/libc10.so")
set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=$abi")
include_directories(\${TORCH_INCLUDE_DIRS})
set(Torch_FOUND TRUE)
CMAKE

# In place of the copy of pybind11 that the build would download: the one pip installs.
cat >"$work/pybind11/CMakeLists.txt" <<CMAKE
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL TRUE)
execute_process(COMMAND "$python" -m pybind11 --cmakedir
  OUTPUT_VARIABLE pybind11_DIR OUTPUT_STRIP_TRAILING_WHITESPACE)
find_package(pybind11 CONFIG REQUIRED)
CMAKE

pip=("$python" -m pip install --quiet --disable-pip-version-check)
"${pip[@]}" 'pybind11<2.13' wheel 'setuptools<81'
echo "install_kaldifeat.sh: building kaldifeat $version, about ten minutes ..."
export KALDIFEAT_CMAKE_ARGS="-DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_LIBDIR=lib \
-DTorch_DIR=$work/torch -DFETCHCONTENT_SOURCE_DIR_PYBIND11=$work/pybind11"
export KALDIFEAT_MAKE_ARGS="-j${JOBS:-2}"
# The variables belong to the build, not to the source, so a wheel cached by pip stays valid.
nice -n 10 "${pip[@]}" --no-build-isolation "kaldifeat==$version"
"$python" -c 'import torch, kaldifeat' || fail "kaldifeat was built but does not import"
echo "install_kaldifeat.sh: kaldifeat $version is ready"
