"""What `onecopy bench images` compares: ways to decode several images, hold them, and stitch them into one."""
