package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/weir-rls/weir/pkg/simulate"
	"github.com/weir-rls/weir/pkg/simulate/report"
)

// checkReportFolder reports a missing folder before a long simulation.
func checkReportFolder(path string) error {
	if info, err := os.Stat(filepath.Dir(path)); path != "" && (err != nil || !info.IsDir()) {
		return fmt.Errorf("--html: no folder %s: create it first", filepath.Dir(path))
	}
	return nil
}

// writeReport writes the report of a result.
func writeReport(path string, result *simulate.Result) error {
	if err := writeWhole(path, func(w io.Writer) error { return report.Write(w, result) }); err != nil {
		return fmt.Errorf("--html: write %s: %w", path, err)
	}
	return nil
}
