package policies

import "github.com/fusebox-dev/fusebox/taxonomy"

// Contract returns the fallback contract of this name, or nil.
func (s *Settings) Contract(name string) *Contract {
	for i := range s.Fallbacks {
		if s.Fallbacks[i].Name == name {
			return &s.Fallbacks[i]
		}
	}
	return nil
}

// Breaker returns the breaker of this name, or nil.
func (s *Settings) Breaker(name string) *Breaker {
	for i := range s.Breakers {
		if s.Breakers[i].Name == name {
			return &s.Breakers[i]
		}
	}
	return nil
}

// Tool returns what is declared of a tool's action: its own entry, else that of
// the tool, else nil.
func (s *Settings) Tool(tool, action string) *Tool {
	var whole *Tool
	for i := range s.Tools {
		t := &s.Tools[i]
		switch {
		case t.Tool != tool:
		case t.Action == action:
			return t
		case t.Action == "":
			whole = t
		}
	}
	return whole
}

// Impact returns how a class of actions is treated, or nil.
func (s *Settings) Impact(actionClass string) *Impact {
	for i := range s.Impacts {
		if s.Impacts[i].ActionClass == actionClass {
			return &s.Impacts[i]
		}
	}
	return nil
}

// Price returns the price of a model: the first entry that matches, or nil.
func (s *Settings) Price(provider, model string) *Price {
	for i := range s.Prices {
		p := &s.Prices[i]
		if matchOne(p.Provider, provider) && matchOne(p.Model, model) {
			return p
		}
	}
	return nil
}

// CostNanoUSD is what this many tokens cost, rounded up.
func (p *Price) CostNanoUSD(input, cached, output int64) int64 {
	usd := (float64(input-cached)*p.Input + float64(cached)*p.CachedInput + float64(output)*p.Output) / 1e6
	nano := (usd + p.PerCall) * 1e9
	n := int64(nano)
	if float64(n) < nano {
		n++
	}
	return n
}

// Profile picks the retry profile of an operation.
func (r *Retry) Profile(o *taxonomy.Operation) *Profile {
	switch {
	case o.Origin == taxonomy.OriginBackground || o.Origin == taxonomy.OriginSchedule || o.Origin == taxonomy.OriginQueue:
		return &r.Background
	case o.Kind == "model":
		return &r.Model
	case o.Kind == "workflow":
		return &r.Workflow
	}
	return &r.Tool
}
