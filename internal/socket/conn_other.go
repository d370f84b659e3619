//go:build !linux

package socket

import "net"

// Wrap returns c. Only Linux has an implementation.
func Wrap(c net.Conn) net.Conn { return c }
