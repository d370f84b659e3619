package main

import (
	"errors"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

const maxLoggedFaults = 20

// faultFields returns log fields for rules that were not loaded: the first maxLoggedFaults faults, or the error if it is not a
// fault.
func faultFields(err error) []zap.Field {
	var faults rulesfile.Faults
	if !errors.As(err, &faults) {
		return []zap.Field{zap.Error(err)}
	}
	logged := faults[:min(len(faults), maxLoggedFaults)]
	return []zap.Field{zap.Int("faults_total", len(faults)), zap.Array("faults", loggedFaults(logged))}
}

type loggedFaults rulesfile.Faults

func (fs loggedFaults) MarshalLogArray(enc zapcore.ArrayEncoder) error {
	for _, f := range fs {
		if err := enc.AppendObject(loggedFault(f)); err != nil {
			return err
		}
	}
	return nil
}

type loggedFault rulesfile.Fault

func (f loggedFault) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	enc.AddString("file", f.File)
	enc.AddInt("line", f.Line)
	enc.AddInt("column", f.Column)
	enc.AddString("message", f.Message)
	if f.Remedy != "" {
		enc.AddString("remedy", f.Remedy)
	}
	enc.AddString("id", f.ID)
	return nil
}
