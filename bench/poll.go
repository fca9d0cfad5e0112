//go:build linux

package bench

import (
	"errors"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// poller waits for sockets with epoll, level-triggered. It belongs to one loop.
type poller struct {
	fd     int
	events [512]unix.EpollEvent
	coarse bool // the kernel has no epoll_pwait2: timeouts are whole milliseconds
}

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return &poller{fd: fd}, nil
}

func (p *poller) close() { _ = unix.Close(p.fd) } // nothing was written through it

func interest(write bool) uint32 {
	if write {
		return unix.EPOLLIN | unix.EPOLLOUT
	}
	return unix.EPOLLIN
}

// add watches fd for reading, and for writing when write is set. key comes back with its events.
func (p *poller) add(fd, key int32, write bool) error {
	return unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, int(fd), &unix.EpollEvent{Events: interest(write), Fd: key})
}

func (p *poller) change(fd, key int32, write bool) error {
	return unix.EpollCtl(p.fd, unix.EPOLL_CTL_MOD, int(fd), &unix.EpollEvent{Events: interest(write), Fd: key})
}

// wait blocks until something happens or the timeout is over. The events are overwritten by the next call.
//
// The system call is a raw one: the scheduler is not told, and so does not hand this thread's processor to another one and back at each call.
// Timeouts are short, and the runtime's signals interrupt the wait when it wants to stop the world.
func (p *poller) wait(timeout time.Duration) ([]unix.EpollEvent, error) {
	var n uintptr
	var errno unix.Errno
	first := uintptr(unsafe.Pointer(&p.events[0]))
	if p.coarse {
		ms := (timeout + time.Millisecond - 1) / time.Millisecond
		n, _, errno = unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), first, uintptr(len(p.events)), uintptr(ms), 0, 0)
	} else {
		ts := unix.NsecToTimespec(int64(timeout))
		n, _, errno = unix.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(p.fd), first, uintptr(len(p.events)),
			uintptr(unsafe.Pointer(&ts)), 0, 0)
	}
	switch {
	case errno == 0:
		return p.events[:n], nil
	case errno == unix.EINTR:
		return nil, nil
	case errors.Is(errno, unix.ENOSYS) && !p.coarse:
		p.coarse = true
		return nil, nil
	}
	return nil, errno
}
