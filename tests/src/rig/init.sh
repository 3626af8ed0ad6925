#!/bin/sh
# The first process of a machine: makes the RDMA device, then leaves all to the
# agent. The kernel's command line names the interface and the address.
export PATH=/usr/bin:/usr/sbin HOME=/root

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts pts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs tmp /tmp

while read -r module; do
    insmod "$module" || echo "rig: $module does not load"
done </modules/order

for word in $(cat /proc/cmdline); do
    case $word in
    rig.interface=*) interface=${word#*=} ;;
    rig.address=*) address=${word#*=} ;;
    rig.lifetime=*) lifetime=${word#*=} ;;
    rig.name=*) hostname "${word#*=}" ;;
    esac
done

ip link set lo up
ip address add "$address/24" dev "$interface"
ip link set "$interface" up
rdma link add rxe0 type rxe netdev "$interface" || echo "rig: no RDMA device on $interface"

rig_agent --lifetime "$lifetime" || echo "rig: the agent failed"
poweroff -f
