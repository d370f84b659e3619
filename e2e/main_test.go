package e2e_test

import (
	"os"
	"testing"

	"github.com/weir-rls/weir/e2e/harness"
)

// binary is Weir, built once for all tests.
var binary, removeBinary = harness.BuildOnce(nil)

// These tests wait more than they compute.
func TestMain(m *testing.M) { os.Exit(harness.Main(m, "e2e", "12", removeBinary)) }
