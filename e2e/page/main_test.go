// Package page tests the page of the admin API in a real Chromium: a real Weir serves it, and a
// real Redis is its store.
package page

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/weir-rls/weir/e2e/harness"
)

// binary is Weir, built once for all tests.
var binary, removeBinary = harness.BuildOnce()

// shots is a folder for screenshots of each view at three widths and in both color schemes.
var shots = flag.String("shots", "", "write screenshots into this folder")

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv("CHROMIUM") == "" {
		fmt.Fprintln(os.Stderr, `page: NOT TESTED: CHROMIUM is empty; run eval "$(tools/ensure chromium)"`)
		if os.Getenv("CHROMIUM_REQUIRED") == "1" {
			os.Exit(1)
		}
		return
	}
	os.Exit(harness.Run(m, "page", func() error { return closeBrowser() }, removeBinary))
}
