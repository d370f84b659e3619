package client

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A ticker is a timer of the kernel: the runtime's own wakes up on whole milliseconds where nothing else runs.
type ticker struct{ file *os.File }

func newTicker(every time.Duration) (ticker, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return ticker{}, os.NewSyscallError("timerfd_create", err)
	}
	t := ticker{os.NewFile(uintptr(fd), "timer")}
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
	_, err := t.file.Read(passed[:])
	return err
}

func (t ticker) stop() { _ = t.file.Close() }
