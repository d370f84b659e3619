package manifests

import (
	"fmt"
	"strings"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	contourv1alpha1 "github.com/projectcontour/contour/apis/projectcontour/v1alpha1"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	istioapi "istio.io/api/networking/v1alpha3"
	istiov1alpha3 "istio.io/client-go/pkg/apis/networking/v1alpha3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

var (
	kinds   = runtime.NewScheme()
	decoder = json.NewSerializerWithOptions(json.DefaultMetaFactory, kinds, kinds,
		json.SerializerOptions{Yaml: true, Strict: true})
)

func init() {
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, certmanagerv1.AddToScheme, contourv1alpha1.AddToScheme, monitoringv1.AddToScheme,
		istiov1alpha3.AddToScheme,
	} {
		utilruntime.Must(add(kinds))
	}
}

// decode parses an object into its API type. An unknown field or an invalid value is an error.
func decode(text []byte) (runtime.Object, error) {
	typed, kind, err := decoder.Decode(text, nil, nil)
	if err != nil {
		return nil, err
	}
	return typed, strictIstio(text, kind)
}

// strictIstio parses the spec of an Istio object strictly, because Istio's types ignore unknown
// fields.
func strictIstio(text []byte, kind *schema.GroupVersionKind) error {
	if !strings.HasSuffix(kind.Group, "istio.io") {
		return nil
	}
	types := map[string]proto.Message{"EnvoyFilter": &istioapi.EnvoyFilter{}, "DestinationRule": &istioapi.DestinationRule{}}
	if types[kind.Kind] == nil {
		return fmt.Errorf("no type to read %v strictly", kind)
	}
	var whole struct{ Spec any }
	if err := yaml.Unmarshal(text, &whole); err != nil {
		return err
	}
	spec, err := yaml.Marshal(whole.Spec)
	if err != nil {
		return err
	}
	if spec, err = yaml.YAMLToJSON(spec); err != nil {
		return err
	}
	return protojson.Unmarshal(spec, types[kind.Kind])
}
