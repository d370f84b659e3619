package loadclient

import (
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-rls/weir/internal/socket"
)

// A ticker is a kernel timer. The runtime's timer has a resolution of a millisecond when the
// process is idle.
type ticker struct {
	file   *os.File
	reader io.Reader
	passed []byte // the number of ticks, which is not used
}

func newTicker(every time.Duration) (ticker, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return ticker{}, os.NewSyscallError("timerfd_create", err)
	}
	t := ticker{file: os.NewFile(uintptr(fd), "timer"), passed: make([]byte, 8)}
	raw, err := t.file.SyscallConn()
	if err != nil {
		t.stop()
		return ticker{}, err
	}
	t.reader = socket.Reader(raw)
	interval := unix.NsecToTimespec(int64(every))
	if err := unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: interval, Value: interval}, nil); err != nil {
		t.stop()
		return ticker{}, os.NewSyscallError("timerfd_settime", err)
	}
	return t, nil
}

// wait returns at the next tick, or immediately if it is overdue.
func (t ticker) wait() error {
	_, err := t.reader.Read(t.passed)
	return err
}

func (t ticker) stop() { _ = t.file.Close() }
