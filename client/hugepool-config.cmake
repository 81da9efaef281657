# find_package(Hugepool): Hugepool::hugepool, and Hugepool::hugepool_static, which needs libprotobuf-c.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
include("${CMAKE_CURRENT_LIST_DIR}/hugepool-targets.cmake")
