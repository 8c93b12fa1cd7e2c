#pragma once

#include <map>
#include <string>
#include <vector>

#include "server/api/responses/response_store.h"
#include "text/chat/conversation.h"

namespace carat::server {

// The items of the Responses API as messages: what the model thought, said and called in a row is one turn of it. Items
// that mean nothing to this model are left out and counted. Throws ApiError naming the item.
class ItemReader {
 public:
  void add(const text::Value& item, const std::string& path);
  std::vector<text::Message> take_messages();
  // One line for each type of item that was left out.
  std::vector<std::string> notes() const;
  void leave_out(const std::string& type) { ++left_out_[type]; }

 private:
  text::Message& model_turn();
  void add_message(const text::Value& item, const std::string& path);
  void add_reasoning(const text::Value& item, const std::string& path);
  void add_call(const text::Value& item, const std::string& type, const std::string& path);
  void add_output(const text::Value& item, const std::string& type, const std::string& path);

  std::vector<text::Message> messages_;
  std::map<std::string, size_t> left_out_;
};

}  // namespace carat::server
