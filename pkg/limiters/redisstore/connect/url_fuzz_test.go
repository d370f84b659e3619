package connect

import (
	"strings"
	"testing"
)

// FuzzParseURL checks that every text is parsed or rejected, and that no error shows a password.
func FuzzParseURL(f *testing.F) {
	const password = "correct-horse"
	for _, seed := range []string{
		"localhost:6379", "redis://me:PASSWORD@localhost:6379/3", "rediss://:PASSWORD@[::1]:1/x", "mymaster,a:1,redis://:PASSWORD@b:2",
		"/var/run/redis.sock", "redis://me:PASSWORD@:0/-1", "PASSWORD", "redis://%zz:PASSWORD@h", "a:1,,b:2", "http://me:PASSWORD@h", "\x00", "://",
	} {
		for _, kind := range []string{"", "single", "SENTINEL", "cluster", "ring"} {
			f.Add(kind, "tcp", seed, "me:PASSWORD")
		}
	}
	f.Fuzz(func(t *testing.T, kind, network, text, auth string) {
		text, auth = strings.ReplaceAll(text, "PASSWORD", password), strings.ReplaceAll(auth, "PASSWORD", password)
		parsed, err := ParseType(kind)
		if err != nil {
			return
		}
		o, err := ParseURL(parsed, network, text)
		if err != nil {
			if strings.Contains(err.Error(), password) {
				t.Errorf("ParseURL(%q): the error shows the password: %v", text, err)
			}
			return
		}
		o.Login.Set(auth)
		o.SentinelLogin.Set(auth)
		addrs := o.Addrs
		if o.Addr != "" {
			addrs = append(addrs, o.Addr)
		}
		if len(addrs) == 0 {
			t.Errorf("%q: no address and no error", text)
		}
		for _, addr := range addrs {
			if addr == "" {
				t.Errorf("%q: an empty address among %q", text, addrs)
			}
		}
	})
}
