package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/pkg/recorder"
)

// minRecordSecret is the minimum length of the secret in RECORD_SECRET_FILE, in bytes.
const minRecordSecret = 16

// openRecorder returns the recorder of RECORD_PATH, or nil if it is not set.
func openRecorder(s *settings.Serve, log *zap.Logger, metrics *telemetry.Metrics) (*recorder.Recorder, error) {
	if s.RecordPath == "" {
		return nil, nil
	}
	if info, err := os.Stat(s.RecordPath); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("RECORD_PATH: %s is not a folder: name a folder, which Weir creates if it is missing", s.RecordPath)
	}
	log = log.With(zap.String("recording", s.RecordPath))
	var secret []byte
	if s.RecordSecretFile == "" {
		log.Info("recorded values are hashed under a random secret",
			zap.String("remedy", "set RECORD_SECRET_FILE if recordings of several processes should fit together"))
	} else {
		text, err := os.ReadFile(s.RecordSecretFile)
		secret = bytes.TrimSpace(text)
		if err == nil && len(secret) < minRecordSecret {
			err = fmt.Errorf("the secret in %s has %d bytes: write at least %d", s.RecordSecretFile, len(secret), minRecordSecret)
		}
		if err != nil {
			return nil, fmt.Errorf("RECORD_SECRET_FILE: %w", err)
		}
	}
	r := recorder.New(recorder.Options{
		Path:       s.RecordPath,
		Replica:    hostname(),
		FileBytes:  s.RecordFileBytes,
		MaxBytes:   s.RecordMaxBytes,
		Sample:     s.RecordSample,
		PerSecond:  s.RecordPerSecond,
		Secret:     secret,
		Plain:      s.RecordCompression == "none",
		ShadowMode: s.ShadowMode,
		Changed: func(failing bool, reason error) {
			if failing {
				log.Error("recording not written, lines are dropped until it can be", zap.Error(reason),
					zap.String("remedy", "check that the folder of RECORD_PATH is writable and its disk is not full"))
				return
			}
			log.Info("recording written again")
		},
	})
	metrics.RegisterRecording(r.Stats)
	return r, nil
}

// closeRecordingTimeout bounds the last write, so that a hanging disk does not block shutdown.
const closeRecordingTimeout = 2 * time.Second

// closeRecorder flushes the recording. No request may be in flight.
func closeRecorder(r *recorder.Recorder, log *zap.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), closeRecordingTimeout)
	defer cancel()
	if err := r.Close(ctx); err != nil {
		log.Warn("end of the recording not written", zap.Error(err))
	}
}
