-- Slurm's burst_buffer/lua: a #MAYFLY line in a job script is enough to ask for an instance, and one
-- that means nothing is refused by sbatch.
--
-- These functions run on the controller's host, where no instance is. So the script is looked at when it
-- is submitted, and the job is marked by its comment before it gets nodes; the nodes' prolog starts the
-- instance, and their epilog, which holds them, brings out what was asked for.
--
-- Slurm takes the words capacity= and pool= of such lines for its own: say size= instead.
--
-- burst_buffer.conf: Directive=MAYFLY. slurm.conf: BurstBufferType=burst_buffer/lua.

local MAYFLY = os.getenv("MAYFLY") or "/usr/bin/mayfly"
local SCONTROL = os.getenv("SCONTROL") or "/usr/bin/scontrol"
local CHECK_SECONDS = 5

local function quoted(text)
    return "'" .. tostring(text):gsub("'", "'\\''") .. "'"
end

-- What a command says, and whether it has done what it should.
local function run(command)
    local pipe = io.popen(command .. " 2>&1; echo $?")
    local said = pipe:read("*a")
    pipe:close()
    local text, status = said:match("^(.-)\n?(%d+)\n$")
    return status == "0", text or said
end

-- At sbatch: are the words good?
function slurm_bb_job_process(job_script)
    local good, why = run("timeout " .. CHECK_SECONDS .. " " .. quoted(MAYFLY) .. " site check "
        .. quoted(job_script))
    if good then
        return slurm.SUCCESS
    end
    if slurm.log_user then
        slurm.log_user("%s", why)
    end
    return slurm.ERROR, why
end

-- While it waits for nodes: the prolog sees the comment.
function slurm_bb_setup(job_id, uid, gid, pool, bb_size, job_script)
    local _, told = run(quoted(SCONTROL) .. " --oneliner show job " .. job_id)
    local comment = told:match(" Comment=(.-) StdErr=") or told:match(" Comment=(.-) WorkDir=") or ""
    if comment:match("^%s*mayfly[%s:;]") or comment:match("^%s*mayfly$") then
        return slurm.SUCCESS
    end
    local marked = "mayfly"
    if comment ~= "" and comment ~= "(null)" then
        marked = "mayfly; " .. comment
    end
    local good, why = run(quoted(SCONTROL) .. " update JobId=" .. job_id .. " "
        .. quoted("Comment=" .. marked))
    if good then
        return slurm.SUCCESS
    end
    return slurm.ERROR, "the job cannot be marked: " .. why
end

local function nothing()
    return slurm.SUCCESS
end

-- The space is that of the job's own nodes.
slurm_bb_pools = nothing
slurm_bb_paths = nothing

function slurm_bb_real_size(job_id, uid, gid, job_info)
    return slurm.SUCCESS, "0"
end

-- Data come in when the job has its nodes, and go out while it still has them.
slurm_bb_data_in = nothing
slurm_bb_pre_run = nothing
slurm_bb_post_run = nothing
slurm_bb_data_out = nothing
slurm_bb_job_teardown = nothing

function slurm_bb_get_status()
    return slurm.SUCCESS, "instances are those of their jobs: mayfly status, within a job"
end
