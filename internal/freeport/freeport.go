// Package freeport reserves loopback ports for the servers of tests and of the demo.
package freeport

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Find returns a port on which nothing listens, and reserves it. The port is below the ephemeral
// range, so that no outgoing connection takes it.
func Find() (int, error) {
	const first, end = 10_000, 32_000
	var err error
	for range 100 {
		port := first + rand.IntN(end-first)
		if err = Reserve(port); err == nil {
			return port, nil
		}
	}
	return 0, err
}

// Addr returns the loopback address with a port.
func Addr(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

var reserved struct {
	sync.Mutex
	locks []net.PacketConn
}

// Reserve reserves a port until this process ends. It returns an error if something listens on the
// port, or if it is reserved, also by another process. Without it, a server of another test could
// start on the port first, or while a server restarts, and both tests would use that server. The
// lock is the UDP port with the same number, which these servers do not use.
func Reserve(port int) error {
	lock, err := net.ListenPacket("udp", Addr(port))
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", Addr(port))
	if err != nil {
		return errors.Join(err, lock.Close())
	}
	reserved.Lock()
	defer reserved.Unlock()
	reserved.locks = append(reserved.locks, lock)
	return l.Close()
}
