#pragma once

#include "sagas/definition/definition.h"

namespace lockstep::sagas {

// The same value in the one form that its hash is made of: keys sorted, and a number without a
// fraction as an integer. Postgres keeps neither the order of keys nor 1e3 apart from 1000.
Json Canonical(const Json& value);

// At most `most` levels of lists and maps (a scalar has none).
bool DepthWithin(const Json& value, int most);

// Bytes of the value as JSON text, about; stops counting once they are more than `most`.
size_t ApproximateSize(const Json& value, size_t most);

}  // namespace lockstep::sagas
