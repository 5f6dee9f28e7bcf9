#!/bin/sh
# Runs the C++ tests on an emulated ARM64 machine, under Debian's own kernel with pages of 4 or of 16 KiB:
#
#     tests/fallbacks/on_arm64.sh 16k            # or 4k; build/arm64/16k.log has the output
#     tests/fallbacks/on_arm64.sh 16k 'cpp.os'   # those that match
#
# Needs Debian's qemu-system-arm, g++-aarch64-linux-gnu, doctest-dev, cpio, e2fsprogs, and apt: packages of the machine
# inside (some 150 MB) come from Debian, by lists of apt of their own. On two idle CPUs the tests take about ten minutes.
set -eu
cd "$(dirname "$0")/../.."
pages=${1:-16k}
tests=${2:-.}
here=$PWD/build/arm64
suite=trixie
case $pages in
4k) kernel=linux-image-arm64 ;;
16k) kernel=linux-image-arm64-16k ;;
*) echo "pages of 4k or 16k, not $pages" >&2 && exit 2 ;;
esac

cmake --preset aarch64 -D CMAKE_CROSSCOMPILING_EMULATOR= # without the preset's own emulator
cmake --build --preset aarch64

mkdir -p "$here/apt/etc/apt.conf.d" "$here/apt/etc/preferences.d" "$here/apt/state/lists/partial" "$here/apt/cache/archives/partial" "$here/share"
: > "$here/apt/state/status"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $suite main" \
  > "$here/apt/sources.list"
cat > "$here/apt/apt.conf" << END
Dir::Etc "$here/apt/etc";
Dir::Etc::sourcelist "$here/apt/sources.list";
Dir::Etc::sourceparts "/nonexistent";
Dir::State "$here/apt/state";
Dir::State::status "$here/apt/state/status";
Dir::Cache "$here/apt/cache";
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Install-Recommends "false";
Acquire::Languages "none";
APT::Sandbox::User "root";
END
export APT_CONFIG="$here/apt/apt.conf"
archives=$here/apt/cache/archives

# The machine: packages unpacked, none configured.
if [ ! -d "$here/root" ]; then
  apt-get -qq update
  apt-get -qq --yes --download-only install base-files bash busybox-static libstdc++6 cmake
  mkdir -p "$here/root.part/mnt"
  dpkg-deb --extract "$archives"/base-files_*.deb "$here/root.part" # first: the links /bin and /lib
  for package in "$archives"/*.deb; do dpkg-deb --extract "$package" "$here/root.part"; done
  ln -sf bash "$here/root.part/usr/bin/sh"
  echo root::0:0::/root:/bin/sh > "$here/root.part/etc/passwd"
  mv "$here/root.part" "$here/root"
fi
if [ ! -d "$here/$kernel" ]; then
  apt-get -qq update
  real=$(apt-cache depends --important "$kernel" | awk '/Depends: linux-image/ {print $2; exit}')
  mkdir -p "$here/$kernel.part" && (cd "$here/$kernel.part" && apt-get -qq download "$real")
  dpkg-deb --extract "$here/$kernel.part"/*.deb "$here/$kernel.part" && mv "$here/$kernel.part" "$here/$kernel"
fi

# The first program of the machine mounts the disk, for which Debian's kernel needs modules.
start=$here/start && rm -rf "$start" && mkdir -p "$start/modules" "$start/disk" "$start/proc" "$start/dev" "$start/bin"
cp "$here/root/usr/bin/busybox" "$start/bin/" && ln -s busybox "$start/bin/sh"
number=10
for module in crc32c_generic libcrc32c crc16 mbcache jbd2 ext4 virtio_blk netfs 9pnet 9pnet_virtio 9p; do
  find "$here/$kernel" -name "$module.ko.xz" -exec xz --decompress --stdout {} \; > "$start/modules/$number-$module.ko"
  number=$((number + 1))
done
cat > "$start/init" << 'END'
#!/bin/sh
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
for module in /modules/*; do insmod "$module"; done
until [ -b /dev/vda ]; do sleep 1; done
mount -t ext4 /dev/vda /disk && mount -t 9p -o trans=virtio,version=9p2000.L share /disk/mnt
mount -t proc proc /disk/proc && mount -t sysfs sys /disk/sys && mount --move /dev /disk/dev
exec switch_root /disk /bin/bash /mnt/run.sh
END
chmod +x "$start/init"
(cd "$start" && find . | cpio --quiet -o -H newc | gzip) > "$here/start.gz"

# What the machine runs. Programs are emulated: the limits of time are those of another machine.
mke2fs -q -F -t ext4 -d "$here/root" "$here/disk.img" 6G
tar cf "$here/share/tests.tar" --exclude='*.o' --exclude='*.a' --exclude='*.gch' -C / \
  "${PWD#/}/build/aarch64" "${PWD#/}/tests/golden" "${PWD#/}/fuzz/corpus" "${PWD#/}/examples"
cat > "$here/share/run.sh" << END
busybox mkdir -p /opt/bin /dev/shm && busybox --install -s /opt/bin && export PATH=\$PATH:/opt/bin
mount -t tmpfs tmpfs /dev/shm && uname -srm && grep -m 1 KernelPageSize /proc/self/smaps
tar xf /mnt/tests.tar -C / && cd "$PWD/build/aarch64"
sed -i 's/TIMEOUT "[0-9]*"/TIMEOUT "1500"/' tests/CTestTestfile.cmake
ctest -j2 --timeout 1500 -R '$tests' -E 'c.symbols|no_compile|cmake_consumer' --output-on-failure
sync && poweroff -f
END
qemu-system-aarch64 -M virt,gic-version=3 -cpu max,pauth-impdef=on,sve=off,sme=off -smp 2 -m 4096 \
  -accel tcg,thread=multi,tb-size=1024 -kernel "$here/$kernel"/boot/vmlinuz-* -initrd "$here/start.gz" \
  -append "console=ttyAMA0 quiet panic=-1" -nodefaults -display none -monitor none -no-reboot -serial stdio \
  -drive "file=$here/disk.img,format=raw,if=none,id=disk,cache=unsafe" -device virtio-blk-pci,drive=disk \
  -fsdev "local,id=share,path=$here/share,security_model=none" -device virtio-9p-pci,fsdev=share,mount_tag=share \
  < /dev/null | tee "$here/$pages.log"
grep -q "100% tests passed" "$here/$pages.log"
