package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// user is nobody, as a number, so that Kubernetes can verify that it is not root. It owns
	// nothing in the image.
	user = "65534:65534"
	// Source is the repository.
	Source = "https://github.com/weir-rls/weir"

	emptyJSON types.MediaType = "application/vnd.oci.empty.v1+json"
)

// A platformImage is the image of one architecture with its bill of materials.
type platformImage struct {
	platform v1.Platform
	image    v1.Image
	sbom     []byte
}

func newPlatformImage(b *Build) (platformImage, error) {
	one := platformImage{platform: v1.Platform{OS: "linux", Architecture: b.Arch}}
	files, err := fileSystem(b)
	if err != nil {
		return one, err
	}
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil },
		// gzip, because Docker before version 23 reads nothing else.
		tarball.WithCompressionLevel(gzip.DefaultCompression), tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return one, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{
		OS: one.platform.OS, Architecture: one.platform.Architecture, Created: v1.Time{Time: b.Date},
		RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User:       user,
			Entrypoint: []string{"/bin/weir"},
			Cmd:        []string{"serve"},
			Env:        []string{"PATH=/bin"},
			WorkingDir: "/",
			// HTTP and gRPC. The debug port is on loopback.
			ExposedPorts: map[string]struct{}{"8080/tcp": {}, "8081/tcp": {}},
			Labels:       Labels(b),
		},
	})
	if err != nil {
		return one, err
	}
	image, err = mutate.Append(image, mutate.Addendum{
		Layer: layer, History: v1.History{Created: v1.Time{Time: b.Date}, CreatedBy: "make image", Comment: b.Version},
	})
	if err != nil {
		return one, err
	}
	one.image = mutate.Annotations(image, Labels(b)).(v1.Image)
	authorities, err := Authorities()
	if err != nil {
		return one, err
	}
	one.sbom, err = BillOfMaterials(b, authorities)
	return one, err
}

// Labels returns the labels of the configuration. Manifests and the index carry them as
// annotations.
func Labels(b *Build) map[string]string {
	all := map[string]string{
		"org.opencontainers.image.title":         "Weir",
		"org.opencontainers.image.description":   "A rate limit service for Envoy.",
		"org.opencontainers.image.source":        Source,
		"org.opencontainers.image.documentation": Source,
		"org.opencontainers.image.licenses":      "Apache-2.0",
		"org.opencontainers.image.version":       b.Version,
		"org.opencontainers.image.created":       b.Date.Format(time.RFC3339),
	}
	if b.Revision != "" {
		all["org.opencontainers.image.revision"] = b.Revision
	}
	return all
}

// fileSystem returns the image's files as a tar archive. ratelimit is a hard link: it takes no
// space, and copying it out of the image copies the binary.
func fileSystem(b *Build) ([]byte, error) {
	dir := tar.Header{Typeflag: tar.TypeDir, Mode: 0o755}
	program := tar.Header{Typeflag: tar.TypeReg, Mode: 0o755}
	file := tar.Header{Typeflag: tar.TypeReg, Mode: 0o644}
	link := tar.Header{Typeflag: tar.TypeLink, Mode: 0o755, Linkname: "bin/weir"}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, one := range []struct {
		header tar.Header
		name   string
		data   []byte
	}{
		{dir, "bin/", nil},
		{program, "bin/weir", b.Binary},
		{link, "bin/ratelimit", nil},
		{dir, "etc/", nil},
		{dir, "etc/ssl/", nil},
		{dir, "etc/ssl/certs/", nil},
		{file, "etc/ssl/certs/ca-certificates.crt", roots()},
	} {
		h := one.header // owned by root, like all of the image
		h.Name, h.Size, h.ModTime, h.Format = one.name, int64(len(one.data)), b.Date, tar.FormatUSTAR
		if err := w.WriteHeader(&h); err != nil {
			return nil, err
		}
		if _, err := w.Write(one.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return archive.Bytes(), err
}

func emptyIndex() v1.ImageIndex { return mutate.IndexMediaType(empty.Index, types.OCIImageIndex) }

// newIndex returns the image of all architectures. The bills of materials are entries of it, so
// every tool that pushes the index pushes them. A registry lists them as referrers of the images.
// Their platform matches no client.
func newIndex(b *Build, all []platformImage) (v1.ImageIndex, error) {
	index := emptyIndex()
	for _, one := range all {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: one.image, Descriptor: v1.Descriptor{Platform: &one.platform},
		})
	}
	for _, one := range all {
		bill, err := newReferrer(one)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: bill, Descriptor: v1.Descriptor{
			ArtifactType: cycloneDX, Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"},
		}})
	}
	return mutate.Annotations(index, Labels(b)).(v1.ImageIndex), nil
}

// A referrer is an artifact that describes an image.
type referrer struct {
	manifest []byte
	content  v1.Layer
}

func newReferrer(of platformImage) (v1.Image, error) {
	subject, err := partial.Descriptor(of.image)
	if err != nil {
		return nil, err
	}
	content := static.NewLayer(of.sbom, cycloneDX)
	layer, err := partial.Descriptor(content)
	if err != nil {
		return nil, err
	}
	config := static.NewLayer([]byte("{}"), emptyJSON)
	empty, err := partial.Descriptor(config)
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: cycloneDX,
		Config: *empty, Layers: []v1.Descriptor{*layer},
		Subject: &v1.Descriptor{MediaType: subject.MediaType, Digest: subject.Digest, Size: subject.Size},
	})
	if err != nil {
		return nil, err
	}
	return partial.CompressedToImage(&referrer{manifest, content})
}

// RawConfigFile returns the empty configuration of an artifact.
func (r *referrer) RawConfigFile() ([]byte, error) { return []byte("{}"), nil }

// MediaType returns the type of its manifest.
func (r *referrer) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// RawManifest returns its manifest.
func (r *referrer) RawManifest() ([]byte, error) { return r.manifest, nil }

// LayerByDigest returns its content.
func (r *referrer) LayerByDigest(v1.Hash) (partial.CompressedLayer, error) { return r.content, nil }
