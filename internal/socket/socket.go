// Package socket makes connections and readers that say nothing to Go's scheduler.
//
// Go expects of a system call that it may take long: it notes when one begins, a thread looks every 20 µs how long it has
// taken, and where others wait gives its processor to another thread, which has to be woken. A socket that never blocks needs
// none of it, and a server that falls idle thousands of times a second pays for it each time.
//
// Under the race detector the calls are package syscall's: test it without, too.
package socket
