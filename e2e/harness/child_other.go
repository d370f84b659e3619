//go:build !linux

package harness

import "syscall"

// childAttr gives a server a process group of its own, so that Ctrl-C reaches only its parent, which then stops the server.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
