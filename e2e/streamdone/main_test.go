// Package streamdone tests leases behind a real Envoy, which calls
// Weir again when a stream ends. A recorder between Envoy and Weir keeps each call, and can lose
// it. The package has tests only.
package streamdone

import (
	"os"
	"testing"

	"github.com/weir-rls/weir/e2e/harness"
)

// binary is Weir, built once for all tests.
var binary, removeBinary = harness.BuildOnce()

// These tests wait more than they compute.
func TestMain(m *testing.M) { os.Exit(harness.Main(m, "streamdone", "64", removeBinary)) }
