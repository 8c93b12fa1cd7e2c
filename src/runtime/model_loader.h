#pragma once

#include <memory>
#include <string>

#include "hub/model_lookup.h"
#include "model/model.h"
#include "text/tokenizer/vocab.h"

namespace carat::runtime {

// Where models are looked for by name: ./models, share/carat/models beside the installed program and models/ of the
// source tree it was built from; for hf: the cache folders the environment names.
hub::LookupPlaces lookup_places();

// The demo model's file. Throws kIo naming the places looked at where there is none.
std::string demo_model(const hub::LookupPlaces& places);

struct LoadedModel {
  std::shared_ptr<const model::Model> model;
  std::shared_ptr<const text::Vocab> vocab;
};

// Errors name the file.
std::shared_ptr<const text::Vocab> load_vocab(const gguf::ModelFile& file);
LoadedModel load_model(const std::string& path);

}  // namespace carat::runtime
