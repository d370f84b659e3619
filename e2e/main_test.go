package e2e_test

import (
	"os"
	"testing"

	"github.com/weir-rls/weir/e2e/harness"
)

// binary is Weir, built once for all tests.
var binary, removeBinary = harness.BuildOnce()

// These tests mostly wait, so they run in parallel beyond the number of cores.
func TestMain(m *testing.M) { os.Exit(harness.Main(m, "e2e", "12", removeBinary)) }
