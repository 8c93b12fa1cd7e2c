#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/tokenizer/vocab.h"

namespace carat::server {

// What a server knows of its model and of itself that answers carry. Never changes once the model is loaded.
struct ServerFacts {
  std::string model_id = {};  // what carat calls the model; answers echo the client's name where it gave one
  std::vector<std::string> aliases = {};  // further names of it
  std::string fingerprint = {};           // the same for the same build, model and kernels: answers with a seed repeat
  std::string version = {};               // of carat
  double created = 0.0;                   // when the model's file was written, Unix time

  uint32_t context = 0;          // tokens that prompt and answer of one request may have together
  uint32_t trained_context = 0;  // the most the model allows
  uint32_t sequences = 0;        // requests that run at the same time
  uint32_t max_choices = 1;      // of one request ("n")

  std::string file_name = {};     // of the model, without its folder
  std::string name = {};          // as the file calls the model
  std::string format = {};        // of most of its weights: "Q4_0"
  std::string architecture = {};  // as in GGUF: "gemma4"
  uint64_t parameters = 0;
  uint64_t file_bytes = 0;
  uint64_t device_bytes = 0;  // of the weights that are on a GPU
  uint32_t vocabulary = 0, width = 0, layers = 0;
  std::string chat_template = {};  // source of the file's template; empty: the built-in one is used
  std::string bos_text = {}, eos_text = {};

  // What a request gets that does not say otherwise.
  double temperature = 1.0, top_p = 0.95, min_p = 0.0;
  uint32_t top_k = 64;
  bool thinks = false;
};

}  // namespace carat::server
