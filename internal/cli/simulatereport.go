package cli

import (
	"errors"
	"fmt"
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

// writeReport writes the report of a result, readable by its owner only. A file that exists is replaced only by a whole report.
func writeReport(path string, result *simulate.Result) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("--html: write %s: %w", path, err)
		}
	}()
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	err = errors.Join(report.Write(file, result), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}
