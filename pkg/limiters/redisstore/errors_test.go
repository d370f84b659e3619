package redisstore

import (
	"errors"
	"fmt"
	"testing"

	"github.com/weir-rls/weir/pkg/limiters"
)

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
