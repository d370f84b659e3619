// Package socket makes connections and readers whose system calls bypass Go's scheduler.
//
// The scheduler assumes that a system call may block. It records when a call begins, and a thread checks every 20 µs how long
// the call has taken. If it is long, the scheduler hands the processor to another thread, which must be woken. A socket that
// never blocks needs none of this. A server that becomes idle thousands of times a second pays for it each time.
//
// Under the race detector the package uses package syscall instead, so test it without the race detector too.
package socket
