/* A part of fake_cuda.c: graphs, and the memory their launches take. */

/* -- graphs -- */

cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned int flags) {
    int r = runtime("cudaGraphCreate");
    if (!r && (!graph || flags)) r = cudaErrorInvalidValue;
    if (!r && !(*graph = graph_make())) r = cudaErrorMemoryAllocation;
    return end(r);
}

static void graph_drop(struct CUgraph_st *g) {
    if (!g->alive && !g->runs) graph_end(g);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    int r = runtime("cudaGraphDestroy");
    if (!r && !is_graph(graph)) r = cudaErrorInvalidValue;
    if (!r) {
        graph->alive = 0;
        graph_drop(graph);
    }
    return end(r);
}

static int instantiate(cudaGraphExec_t *run, cudaGraph_t graph, unsigned long long flags) {
    int i = 0;
    if (!run || !is_graph(graph)) return cudaErrorInvalidValue;
    /* cudaGraphInstantiate: at most one of a graph with allocations */
    if (graph->peak && graph->runs) return cudaErrorInvalidValue;
    while (i < GRAPHS && runs[i].graph) i++;
    if (i == GRAPHS) return cudaErrorMemoryAllocation;
    runs[i].graph = graph;
    runs[i].auto_free = flags == 1; /* cudaGraphInstantiateFlagAutoFreeOnLaunch */
    graph->runs++;
    *run = &runs[i];
    return 0;
}

#if CUDART_VERSION >= 12000
RUNTIME(cudaGraphInstantiate, (cudaGraphExec_t *run, cudaGraph_t graph, unsigned long long flags),
        instantiate(run, graph, flags))
#else
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *run, cudaGraph_t graph, cudaGraphNode_t *bad,
                                 char *log, size_t bytes) {
    int r = runtime("cudaGraphInstantiate");
    (void)bad, (void)log, (void)bytes;
    return end(r ? r : instantiate(run, graph, 0));
}
#endif

#if CUDART_VERSION >= 11040
RUNTIME(cudaGraphInstantiateWithFlags, (cudaGraphExec_t *run, cudaGraph_t graph,
                                        unsigned long long flags),
        instantiate(run, graph, flags))
#endif

static int is_run(cudaGraphExec_t run) {
    return run >= runs && run < runs + GRAPHS && run->graph != NULL;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t run) {
    int r = runtime("cudaGraphExecDestroy");
    if (!r && !is_run(run)) r = cudaErrorInvalidValue;
    if (!r) {
        run->graph->runs--;
        graph_drop(run->graph);
        run->graph = NULL;
    }
    return end(r);
}

static void graph_free(storage *s) {
    fake.device[s->device].graph_used -= s->bytes;
    s->state = GIVEN_BACK;
}

/* cudaGraphLaunch: not while an allocation of the last launch is live, unless launches free. */
static int launch(struct CUgraphExec_st *run) {
    struct CUgraph_st *g = run->graph;
    fake_device *d = &fake.device[g->device];
    uint64_t most;
    int i;
    for (i = 0; i < n_storages; i++)
        if (storages[i].kind == GRAPH && storages[i].graph == g && storages[i].state == RUN) {
            if (!run->auto_free) return cudaErrorInvalidValue;
            graph_free(&storages[i]);
        }
    most = d->graph_used + g->peak;
    if (most > d->graph_reserved && !room(g->device, most - d->graph_reserved))
        return cudaErrorMemoryAllocation;
    if (most > d->graph_reserved) d->graph_reserved = most;
    if (most > d->graph_used_high) d->graph_used_high = most;
    if (d->graph_reserved > d->graph_reserved_high) d->graph_reserved_high = d->graph_reserved;
    for (i = 0; i < n_storages; i++)
        if (storages[i].kind == GRAPH && storages[i].graph == g && storages[i].state != INNER) {
            storages[i].state = RUN;
            d->graph_used += storages[i].bytes;
        }
    return 0;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t run, cudaStream_t stream) {
    int r = runtime("cudaGraphLaunch");
    struct CUstream_st *s = stream_of(stream);
    if (!r && !is_run(run)) r = cudaErrorInvalidValue;
    if (!r) r = use(s);
    if (!r && !s->capture) r = launch(run);
    if (!r && !s->capture) give(s);
    return end(r);
}

static int graph_attribute(int device, int attribute, void *value) {
    const fake_device *d = &fake.device[device];
    const uint64_t values[] = {d->graph_used, d->graph_used_high, d->graph_reserved,
                               d->graph_reserved_high};
    if (!value || attribute < 0 || attribute > 3) return cudaErrorInvalidValue;
    memcpy(value, &values[attribute], sizeof values[0]);
    return 0;
}

static int graph_trim(int device) {
    int r = unsafe();
    if (r) return r;
    fake.device[device].graph_trims++;
    fake.device[device].graph_reserved = fake.device[device].graph_used;
    return 0;
}

#if CUDART_VERSION >= 11040
cudaError_t cudaDeviceGetGraphMemAttribute(int device, enum cudaGraphMemAttributeType attribute,
                                           void *value) {
    const int first = cudaGraphMemAttrUsedMemCurrent; /* 1 in CUDA 11.4 and 11.5 */
    int r = runtime("cudaDeviceGetGraphMemAttribute");
    if (!r && !valid(device)) r = cudaErrorInvalidDevice;
    return end(r ? r : graph_attribute(device, (int)attribute - first, value));
}

cudaError_t cudaDeviceGraphMemTrim(int device) {
    int r = runtime("cudaDeviceGraphMemTrim");
    if (!r && !valid(device)) r = cudaErrorInvalidDevice;
    return end(r ? r : graph_trim(device));
}
#endif
