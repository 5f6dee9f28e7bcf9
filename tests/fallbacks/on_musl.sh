#!/bin/sh
# Builds the wheel for musl, and runs its tests in a CPython for musl, which is built here too (in build/on_musl, once):
#
#     tests/fallbacks/on_musl.sh
#     tests/fallbacks/on_musl.sh tests/python/arrays    # these instead of tests/installed/suite.txt
#
# Needs Debian's musl-tools from 1.2.4 on (numpy's wheels have relative relocations, which older loaders do not apply),
# dpkg-dev, and .venv. The C compiler is musl-gcc; Debian has no C++ library for musl, so the C++ compiler is that of the
# Python package ziglang, with its libc++ linked statically. Sources of CPython and two libraries come from Debian.
# A quarter of an hour on two CPUs.
set -eu
cd "$(dirname "$0")/../.."
root=$PWD here=$PWD/build/on_musl
[ $# -gt 0 ] || set -- @tests/installed/suite.txt
/lib/ld-musl-x86_64.so.1 2>&1 | grep -qE 'Version 1\.2\.([4-9]|[0-9]{2})' ||
  { echo "musl 1.2.4 or newer is needed" >&2 && exit 2; }
mkdir -p "$here/bin" "$here/source" "$here/wheels" "$here/apt/lists/partial"
PATH=$here/bin:$root/.venv/bin:$PATH
unset PYTHONPATH CC CXX CMAKE_ARGS

# Compilers.
[ -d "$here/zig" ] || python -m pip --quiet install --target "$here/zig" ziglang==0.17.1
printf '#!/bin/sh\n[ "$*" = --print-multiarch ] && echo x86_64-linux-musl || exec musl-gcc "$@"\n' > "$here/bin/cc-musl"
printf '#!/bin/sh\nexec %s c++ -target x86_64-linux-musl -dynamic -fno-sanitize=undefined "$@"\n' "$here/zig/ziglang/zig" \
  > "$here/bin/c++"
sed 's/ c++ / cc /' "$here/bin/c++" > "$here/bin/cc"
chmod +x "$here"/bin/*

# The interpreter: without OpenSSL, SQLite and the like.
if [ ! -x "$here/python/bin/python3.11" ]; then
  echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main" \
    > "$here/apt/list"
  apt() {
    apt-get -qq -o Dir::Etc::sourcelist="$here/apt/list" -o Dir::Etc::sourceparts=/nonexistent \
      -o Dir::State::lists="$here/apt/lists" -o APT::Sandbox::User=root "$@"
  }
  (cd "$here/source" && apt update && apt --download-only source zlib libffi python3.11 &&
    for file in *.orig.tar.*; do tar xf "$file"; done) # without Debian's changes, which name folders for glibc
  linux="-idirafter /usr/include -idirafter /usr/include/x86_64-linux-gnu" # headers of the kernel
  flags="-O2 -fPIC -I$here/static/include $linux"
  configure() { ./configure --host=x86_64-pc-linux-musl CC=cc-musl CFLAGS="$flags" "$@"; }
  (cd "$here"/source/zlib-*/ && CC=cc-musl CFLAGS="$flags" ./configure --static --prefix="$here/static" &&
    make -j2 libz.a && make install)
  (cd "$here"/source/libffi-*/ && configure --build=x86_64-linux-gnu --disable-shared --disable-docs \
    --disable-exec-static-tramp --disable-multi-os-directory --prefix="$here/static" && make -j2 install)
  (cd "$here"/source/Python-3.11.*/ && configure --build=x86_64-linux-musl \
    LDFLAGS="-L$here/static/lib" PKG_CONFIG_LIBDIR="$here/static/lib/pkgconfig" READELF="$(command -v readelf)" AR=ar \
    --with-build-python=python3.11 --without-ensurepip --disable-test-modules --prefix="$here/python" \
    ac_cv_file__dev_ptmx=yes ac_cv_file__dev_ptc=no ac_cv_buggy_getaddrinfo=no && make -j2 && make install)
fi

# Wheels: from the index; of ml_dtypes, which has none for musl; ours. `pip` is that of .venv, run by the other interpreter.
wheels=$here/wheels
pip() { python -m pip --python "$here/build-env/bin/python" "$@" --no-index --find-links "$wheels" --quiet; }
"$here/python/bin/python3.11" -m venv --without-pip --clear "$here/build-env"
group() { python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['dependency-groups']['$1'], sep='\n')"; }
builders="nanobind numpy scikit_build_core packaging pathspec" # as they are in .venv
{
  group installed | grep -v ml_dtypes
  group release | grep auditwheel
  all="$builders pygments pluggy iniconfig sortedcontainers mdurl markdown-it-py"
  python -m pip freeze | grep -iE "^($(echo "$all" | tr ' ' '|'))=="
} > "$here/needed"
python -m pip --quiet download --no-deps --only-binary :all: --python-version 3.11 --platform musllinux_1_2_x86_64 \
  --dest "$wheels" --requirement "$here/needed" setuptools==84.2.1 wheel==0.48.0 pyelftools==0.33
# shellcheck disable=SC2086 # words
pip install $builders auditwheel pyelftools setuptools wheel
build() { pip wheel --no-deps --no-build-isolation --no-cache-dir --wheel-dir "$@"; }
if ! ls "$wheels"/ml_dtypes-*.whl > /dev/null 2>&1; then
  python -m pip --quiet download --no-deps --no-binary ml_dtypes --dest "$wheels" "$(group installed | grep ml_dtypes)"
  LDSHARED="c++ -shared" build "$wheels" "$wheels"/ml_dtypes-*.tar.gz
fi
rm -rf "$here/made" "$here/unpacked" "$here/repaired"
build "$here/made" --config-settings "build-dir=$here/build" .
python -m zipfile --extract "$here"/made/onecopy-*.whl "$here/unpacked"
make --silent build/release/stamp && PATH=$root/build/release/bin:$PATH
patchelf --replace-needed libc.so libc.musl-x86_64.so.1 "$here"/unpacked/onecopy/_core.*.so # as on musl systems
"$here/build-env/bin/python" -m wheel pack --dest-dir "$here/made" "$here/unpacked"
"$here/build-env/bin/python" -m auditwheel repair --wheel-dir "$here/repaired" "$here"/made/onecopy-*.whl

# The wheel alone, then its tests, outside the checkout.
own=$here/env/bin/python
"$here/python/bin/python3.11" -m venv --without-pip --clear "$here/env"
python -m pip --python "$own" install --quiet --no-index --find-links "$wheels" "$here"/repaired/onecopy-*.whl
rm -rf "$here/tree" && mkdir "$here/tree" && cp -r tests conftest.py pyproject.toml "$here/tree" && cd "$here/tree"
"$own" -W error tests/installed/alone.py
# shellcheck disable=SC2046 # words
python -m pip --python "$own" install --quiet --no-index --find-links "$wheels" $(cd "$root" && group installed)
exec "$own" -m pytest -q "$@"
