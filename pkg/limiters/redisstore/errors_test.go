package redisstore

import (
	"errors"
	"fmt"
	"testing"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A wrongPassword is a reply of Redis.
type wrongPassword struct{}

func (wrongPassword) Error() string {
	return "WRONGPASS invalid username-password pair or user is disabled."
}
func (wrongPassword) RedisError() {}

// A rejected password does not hide that nothing was charged. Otherwise the ends of leases that nobody holds are sent.
func TestRejectedPasswordStaysUncharged(t *testing.T) {
	for err, uncharged := range map[error]bool{
		fmt.Errorf("loading the slots: %w", wrongPassword{}):                     false,
		limiters.Uncharged(fmt.Errorf("loading the slots: %w", wrongPassword{})): true,
	} {
		got := explainError(err)
		if !errors.Is(got, ErrAuth) || limiters.IsUncharged(got) != uncharged {
			t.Errorf("%v: ErrAuth %v and uncharged %v, want true and %v", got, errors.Is(got, ErrAuth), limiters.IsUncharged(got), uncharged)
		}
	}
}
