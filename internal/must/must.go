// Package must contains helpers that end a test after an error, or if an awaited event does not
// happen.
package must

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Succeed ends the test if err is not nil.
func Succeed(t testing.TB, err error) {
	if err != nil {
		t.Helper() // here, because it costs more than most calls of Succeed
		t.Fatal(err)
	}
}

// Read returns the content of a file.
func Read(t testing.TB, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	Succeed(t, err)
	return content
}

// Write writes a file, in a folder that it creates if it is missing, and returns the path.
func Write(t testing.TB, path, text string) string {
	t.Helper()
	Succeed(t, os.MkdirAll(filepath.Dir(path), 0o755))
	Succeed(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// maxWait is far longer than any step of a test takes, even on a busy machine.
const maxWait = 2 * time.Minute

// Until polls done, and returns the time at which it was first true, to 2 % of the wait. It polls
// less often the longer it waits, because done may cost a request to a container. The test fails
// after 2 minutes, see [LongestWait].
func Until(t testing.TB, what string, done func() bool) time.Time {
	t.Helper()
	wait, start := LongestWait(t, maxWait), time.Now()
	for !done() {
		waited := time.Since(start)
		if waited > wait {
			t.Fatalf("not in %v: %s", wait, what)
		}
		time.Sleep(min(max(5*time.Millisecond, waited/50), 100*time.Millisecond))
	}
	return time.Now()
}

// LongestWait returns atMost or, if go test ends the tests sooner, the time until 5 seconds before
// that. So a test that waits without success fails with its own message.
func LongestWait(t testing.TB, atMost time.Duration) time.Duration {
	if t, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if deadline, ok := t.Deadline(); ok {
			return min(atMost, time.Until(deadline)-5*time.Second)
		}
	}
	return atMost
}
