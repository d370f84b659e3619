package client

import (
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A ticker is a timer of the kernel: the runtime's own wakes up on whole milliseconds where nothing else runs.
type ticker struct {
	file *os.File
	raw  syscall.RawConn
}

func newTicker(every time.Duration) (ticker, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return ticker{}, os.NewSyscallError("timerfd_create", err)
	}
	t := ticker{file: os.NewFile(uintptr(fd), "timer")}
	if t.raw, err = t.file.SyscallConn(); err != nil {
		t.stop()
		return ticker{}, err
	}
	interval := unix.NsecToTimespec(int64(every))
	if err := unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: interval, Value: interval}, nil); err != nil {
		t.stop()
		return ticker{}, os.NewSyscallError("timerfd_settime", err)
	}
	return t, nil
}

// wait returns at the next tick, at once if it has passed.
func (t ticker) wait() error {
	var passed [8]byte
	var no syscall.Errno
	err := t.raw.Read(func(fd uintptr) bool {
		_, _, no = syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(&passed)), uintptr(len(passed)))
		return no != syscall.EAGAIN
	})
	if err == nil && no != 0 {
		return os.NewSyscallError("read", no)
	}
	return err
}

func (t ticker) stop() { _ = t.file.Close() }
