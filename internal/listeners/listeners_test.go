package listeners

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTCPAcceptsBracketedHosts(t *testing.T) {
	l, err := TCP("[::1]", 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
}

func TestUnixReplacesAStaleSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := Unix(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Unix(path); err == nil || !strings.Contains(err.Error(), path+": another process listens") {
		t.Errorf("a socket in use: %v", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = l.Close()
	l, err = Unix(path)
	if err != nil {
		t.Fatalf("a socket left behind: %v", err)
	}
	_ = l.Close()
	if err := os.WriteFile(path, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Unix(path); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("a file: %v", err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "data" {
		t.Errorf("the file is gone: %q, %v", data, err)
	}
}
