package harness

import "syscall"

// childAttr gives a server a process group of its own, so that Ctrl-C reaches only its parent, which then stops the server.
// The server ends with its parent, so that a crashed test leaves no process behind.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
