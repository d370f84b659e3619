package connect

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
)

func TestAuthOverridesCredentialsOfTheURL(t *testing.T) {
	for _, c := range []struct{ text, user, password string }{
		{"", "of the url", "of the url"},
		{"secret", "of the url", "secret"},
		{"me:secret", "me", "secret"},
		{"me:sec:ret", "me", "sec:ret"},
		{":secret", "of the url", "secret"},
	} {
		login := Login{Username: "of the url", Password: "of the url"}
		login.Set(c.text)
		if login.Username != c.user || login.Password != c.password {
			t.Errorf("%q: %q and %q, want %q and %q", c.text, login.Username, login.Password, c.user, c.password)
		}
	}
}

func TestInvalidAuthFilesAreRejectedAndNotQuoted(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none"):        "none: no such file",
		dir:                               dir + " is not a regular file",
		file("empty", ""):                 "is empty",
		file("newline", "\n"):             "is empty",
		file("user", "s3cret:"):           "has a user and no password",
		file("lines", "s3cret\ns3cret\n"): "has several lines",
		file("large", strings.Repeat("s3cret", 1<<20)): "is too large: want at most 1048576 bytes",
	} {
		var login Login
		err := login.SetFile(path)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

func TestAuthFileLosesOnlyItsLineEnd(t *testing.T) {
	file := func(t *testing.T, text string) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "auth")
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	for text, want := range map[string][2]string{
		"secret": {"of-url", "secret"}, "secret\n": {"of-url", "secret"}, "me:se:cret\r\n": {"me", "se:cret"}, ":secret": {"of-url", "secret"},
		" spaces stay ": {"of-url", " spaces stay "},
	} {
		login := Login{Username: "of-url", Password: "of-url"}
		must.Succeed(t, login.SetFile(file(t, text)))
		if user, password, err := login.credentials(t.Context()); err != nil || user != want[0] || password != want[1] {
			t.Errorf("%q: %q, %q, %v, want %q", text, user, password, err, want)
		}
	}
}
