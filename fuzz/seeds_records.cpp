// Writes the seeds of fuzz_records into a folder: without checksums, so that what fuzzing changes is read.
#include <filesystem>
#include <functional>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "onecopy/arrays/array_writer.hpp"
#include "onecopy/records/builder.hpp"
#include "onecopy/records/record_file.hpp"

namespace {

using namespace onecopy::records;  // NOLINT(google-build-using-namespace)

void append_list(Column& column, std::size_t size) {
  ListColumn& list = column.list();
  for (std::size_t i = 0; i < size; ++i) list.items().integer(static_cast<std::int64_t>(i));
  list.end();
}

void append_every_kind(Column& rows) {
  for (int i = 0; i < 5; ++i) {
    RecordColumn& row = rows.record();
    row.field("flag").boolean(i % 2 == 0);
    row.field("id").integer(std::int64_t{i} * 100);
    row.field("big").bigint(std::as_bytes(std::span("123456789", 9)));
    row.field("real").real(i / 2.0);
    i % 2 == 0 ? row.field("number").real(0.5) : row.field("number").integer(i);
    i == 3 ? row.field("text").null() : row.field("text").text(std::string(static_cast<std::size_t>(i), 'x'));
    append_list(row.field("list"), static_cast<std::size_t>(i));
    ListColumn& lists = row.field("lists").tuple();
    append_list(lists.items(), 2);
    lists.end();
    FixedColumn& fixed = row.field("fixed").fixed(2);
    fixed.at(0).integer(i);
    fixed.at(1).text("y");
    fixed.end();
    MapColumn& map = row.field("map").map();
    map.keys().integer(i);
    map.values().text("z");
    map.end();
    const std::vector<std::uint64_t> shape{1, 2};
    row.field("array").array(
        {.dtype = "<i2", .item_size = 2, .shape = shape, .bytes = std::as_bytes(std::span("abcd", 4))});
    row.field("extension").extension("date").integer(i);
    i % 2 == 0 ? row.field("choice").text("c") : row.field("choice").boolean(true);
    if (i == 4) row.field("late").null();
    row.end();
  }
}

void append_pairs(Column& rows, const std::function<void(Column&, int)>& key, int count) {
  for (int i = 0; i < count; ++i) {
    FixedColumn& pair = rows.fixed(2);
    key(pair.at(0), i);
    pair.at(1).integer(i);
    pair.end();
  }
}

void save(const std::filesystem::path& path, const std::string& container, const std::function<void(Column&)>& append) {
  Builder builder({.spool = path.parent_path(), .container = container, .metadata = {}});
  append(builder.rows());
  builder.save(path);
  const auto file = RecordFile::open(path);
  std::vector<onecopy::NamedArray> arrays;
  for (const auto& entry : file.arrays().index().entries())
    if (!file.arrays().index().is_filler(entry))
      arrays.push_back({{std::string(entry.name), entry.dtype, {entry.shape.begin(), entry.shape.end()}},
                        file.arrays().bytes(entry)});
  onecopy::save(path, arrays,
                {.kind = onecopy::Kind::records,
                 .metadata = {},
                 .schema = write_schema(file.schema()),
                 .align = {},
                 .checksum = false});
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::cerr << "usage: seeds_records FOLDER\n";
    return 2;
  }
  const std::filesystem::path folder = std::span(arguments, 2)[1];
  save(folder / "empty", "list", [](Column&) {});
  save(folder / "kinds", "list", append_every_kind);
  save(folder / "list", "list", [](Column& rows) { append_list(rows, 3), append_list(rows, 0), rows.null(); });
  save(folder / "dict", "dict",
       [](Column& rows) { append_pairs(rows, [](Column& key, int i) { key.text(std::to_string(i)); }, 20); });
  save(folder / "mixed", "dict", [](Column& rows) {
    append_pairs(
        rows,
        [](Column& key, int i) {
          if (i % 3 == 0) return key.integer(i);
          if (i % 3 == 1) return key.real(i + 0.5);
          FixedColumn& tuple = key.fixed(2);
          tuple.at(0).integer(i);
          tuple.at(1).null();
          tuple.end();
        },
        6);
  });
  save(folder / "table", "list", [](Column& rows) {
    for (int i = 0; i < 3; ++i) {
      RecordColumn& row = rows.record();
      row.field("a").integer(i);
      append_list(row.field("b"), static_cast<std::size_t>(i));
      row.end();
    }
  });
}
