package xds

import (
	"testing"
	"time"
)

// SetPatience shortens, for a test, how long a connection may take.
func SetPatience(t *testing.T, d time.Duration) {
	before := patience
	patience = d
	t.Cleanup(func() { patience = before })
}

// SetSilence shortens, for a test, how long a server may say nothing to a version.
func SetSilence(t *testing.T, d time.Duration) {
	before := silence
	silence = d
	t.Cleanup(func() { silence = before })
}
