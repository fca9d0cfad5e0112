//go:build linux

package bench

import (
	"fmt"
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// perSource is how many connections use one source address before a second one is taken: well below the 28,232 ports that Linux
// gives out by default, because those of earlier runs may still be in TIME_WAIT.
const perSource = 20_000

// resolve finds the address to dial.
func resolve(addr string) (netip.AddrPort, error) {
	tcp, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("address %q: %w", addr, err)
	}
	ap := tcp.AddrPort()
	ip := ap.Addr().Unmap()
	if !ip.IsValid() || ip.IsUnspecified() {
		ip = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.AddrPortFrom(ip, ap.Port()), nil
}

// sources are the addresses to dial from: 127.0.0.1, .2, … when there are too many connections for one and the server is on
// loopback, otherwise none, and the kernel decides.
func sources(to netip.AddrPort, conns int) []netip.Addr {
	n := (conns + perSource - 1) / perSource
	if n < 2 || !to.Addr().Is4() || !to.Addr().IsLoopback() {
		return nil
	}
	list := make([]netip.Addr, n)
	for i := range list {
		list[i] = netip.AddrFrom4([4]byte{127, 0, byte(i / 254), byte(i%254 + 1)})
	}
	return list
}

func sockaddr(ap netip.AddrPort) (unix.Sockaddr, int) {
	if ap.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(ap.Port()), Addr: ap.Addr().As4()}, unix.AF_INET
	}
	return &unix.SockaddrInet6{Port: int(ap.Port()), Addr: ap.Addr().As16()}, unix.AF_INET6
}

// dial starts to connect and returns at once; the socket is writable when it is done. from may be the zero Addr.
func dial(to netip.AddrPort, from netip.Addr) (fd int32, err error) {
	sa, family := sockaddr(to)
	s, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	if err = start(s, sa, from); err != nil {
		_ = unix.Close(s) // the first error is the one to report
		return -1, err
	}
	return int32(s), nil
}

func start(s int, to unix.Sockaddr, from netip.Addr) error {
	if err := unix.SetsockoptInt(s, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return fmt.Errorf("TCP_NODELAY: %w", err)
	}
	if from.IsValid() {
		// The port is chosen at connect, when the other end is known, so that it only has to be free towards that.
		if err := unix.SetsockoptInt(s, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1); err != nil {
			return fmt.Errorf("IP_BIND_ADDRESS_NO_PORT: %w", err)
		}
		sa, _ := sockaddr(netip.AddrPortFrom(from, 0))
		if err := unix.Bind(s, sa); err != nil {
			return fmt.Errorf("bind to %s: %w", from, err)
		}
	}
	if err := unix.Connect(s, to); err != nil && err != unix.EINPROGRESS {
		return fmt.Errorf("connect: %w", err)
	}
	return nil
}

// dialed tells what became of a connect.
func dialed(fd int32) error {
	code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return err
	}
	if code != 0 {
		return unix.Errno(code)
	}
	return nil
}

// read and write are raw system calls on sockets that do not block: the scheduler need not know.
func read(fd int32, p []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	return int(n), errno
}

func write(fd int32, p []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	return int(n), errno
}

// RaiseFileLimit raises the soft limit of open files to the hard one and returns it.
func RaiseFileLimit() (uint64, error) {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return 0, fmt.Errorf("RLIMIT_NOFILE: %w", err)
	}
	if lim.Cur < lim.Max {
		lim.Cur = lim.Max
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
			return 0, fmt.Errorf("RLIMIT_NOFILE: %w", err)
		}
	}
	return lim.Cur, nil
}
