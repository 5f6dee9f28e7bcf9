#!/usr/bin/env bash
# A file system on a loop device that reads 128 KiB ahead, as most machines do: tools/loop_disk.sh up|down FOLDER [SIZE]
# Needs root. Overhead of the loop device is included in what is measured on it, so compare ratios.
set -euo pipefail
verb=${1:?up or down} folder=${2:?folder} size=${3:-4G}
image="$folder.img"
case $verb in
  up)
    mkdir -p "$folder"
    truncate -s "$size" "$image"
    device=$(losetup --find --show --direct-io=on "$image")
    mkfs.ext4 -q "$device"
    blockdev --setra 256 "$device" # sectors of 512 bytes
    mount "$device" "$folder"
    ;;
  down)
    device=$(findmnt -no SOURCE "$folder")
    umount "$folder"
    losetup --detach "$device"
    rm -f "$image"
    rmdir "$folder"
    ;;
  *)
    echo "up or down, not $verb" >&2
    exit 2
    ;;
esac
