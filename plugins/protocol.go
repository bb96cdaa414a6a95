package plugins

import (
	"context"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/fusebox-dev/fusebox/plugins/wire"
)

// ProtocolVersion is the version of the service in extension.proto. A plugin
// that speaks another one is refused before it is asked anything.
const ProtocolVersion = 1

// DocumentVersion is the version of the documents, the "/v1" in their names.
const DocumentVersion = 1

// Bounds of what crosses, in bytes. Answers are far smaller: taxonomy.MaxAnswer.
const (
	maxQuestion = 4 << 20
	maxMessage  = 64 << 10
)

// Handshake is what both sides say before anything else. The cookie is no
// secret: it tells a person who starts a plugin by hand what it is.
var Handshake = goplugin.HandshakeConfig{ProtocolVersion: ProtocolVersion,
	MagicCookieKey: "FUSEBOX_PLUGIN", MagicCookieValue: "fusebox extension v1"}

// Served is the name under which go-plugin knows the one service.
const Served = "extension"

// Set is what both sides hand to go-plugin; server is nil on the host's side.
func Set(server wire.ExtensionServer) goplugin.PluginSet {
	return goplugin.PluginSet{Served: &bridge{server: server}}
}

// bridge connects go-plugin with the service.
type bridge struct {
	goplugin.NetRPCUnsupportedPlugin
	server wire.ExtensionServer
}

// GRPCServer implements go-plugin's interface for the plugin's side.
func (b *bridge) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	wire.RegisterExtensionServer(s, b.server)
	return nil
}

// GRPCClient implements it for ours.
func (b *bridge) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, c *grpc.ClientConn) (any, error) {
	return wire.NewExtensionClient(c), nil
}
