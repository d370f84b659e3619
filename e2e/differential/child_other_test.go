//go:build !linux

package differential

import "syscall"

// childAttr is nothing in particular where a child cannot be told to end with its parent.
func childAttr() *syscall.SysProcAttr { return nil }
