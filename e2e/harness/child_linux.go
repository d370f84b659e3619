package harness

import "syscall"

// childAttr gives a server a process group of its own, so that Ctrl-C reaches only its parent, which then stops it in order;
// and lets it end with its parent, so that a test that crashes leaves nothing behind.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
