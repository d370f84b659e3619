// Package socket provides connections and readers whose system calls bypass Go's scheduler.
//
// The scheduler assumes that a system call may block. It records the start, and a thread checks
// every 20 µs whether to hand the processor to another thread, which must be woken. A non-blocking
// socket needs none of this, and a server that becomes idle thousands of times a second pays for it
// each time.
//
// Under the race detector the package uses package syscall instead, so it should also be tested
// without.
package socket
