package redisstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/limiters"
)

// The runbook of WeirStoreFails finds the cause by a part of the error text.
func TestRunbookNamesTheReasonsOfFailures(t *testing.T) {
	runbooks := string(must.Read(t, "../../../docs/runbooks.md"))
	for reason, err := range map[string]error{
		"the last calls to Redis failed":                  ErrBreakerOpen,
		"the queue for Redis is full":                     ErrQueueFull,
		"timed out or was canceled while it waited":       errEndedUnsent,
		"timed out or was canceled before Redis answered": errEndedSent,
		"the call ran after its deadline":                 errLate,
		"the password was rejected":                       ErrAuth,
	} {
		if !strings.Contains(err.Error(), reason) {
			t.Errorf("%v: want %q in it, as the runbook says", err, reason)
		}
		if !strings.Contains(runbooks, "`"+reason+"`") {
			t.Errorf("docs/runbooks.md has no row for %q", reason)
		}
	}
}

// The runbook also has the words of Redis, which the tests of a full Redis and of ACLs expect.
func TestRunbookNamesTheReasonsOfRedis(t *testing.T) {
	runbooks := string(must.Read(t, "../../../docs/runbooks.md"))
	for _, reason := range append([]string{oomText}, forbiddenTexts...) {
		if !strings.Contains(runbooks, "`"+reason+"`") {
			t.Errorf("docs/runbooks.md has no row for %q", reason)
		}
	}
}

// A wrongPasswordError is a reply of Redis.
type wrongPasswordError struct{}

func (wrongPasswordError) Error() string {
	return "WRONGPASS invalid username-password pair or user is disabled."
}
func (wrongPasswordError) RedisError() {}

// A rejected password does not hide that nothing was charged. Otherwise the ends of leases that
// nobody holds are sent.
func TestRejectedPasswordStaysUncharged(t *testing.T) {
	for err, uncharged := range map[error]bool{
		fmt.Errorf("loading the slots: %w", wrongPasswordError{}):                     false,
		limiters.Uncharged(fmt.Errorf("loading the slots: %w", wrongPasswordError{})): true,
	} {
		got := explainError(err)
		if !errors.Is(got, ErrAuth) || limiters.IsUncharged(got) != uncharged {
			t.Errorf("%v: ErrAuth %v and uncharged %v, want true and %v", got, errors.Is(got, ErrAuth), limiters.IsUncharged(got), uncharged)
		}
	}
}
